export const inspectorTests = [];
