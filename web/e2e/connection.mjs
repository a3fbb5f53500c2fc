export const connectionTests = [];
