export const adkTests = [];
