export const reloadTests = [];
