export const clientToolTests = [];
