export const approvalTests = [];
