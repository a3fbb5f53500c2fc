export const lookTests = [];
