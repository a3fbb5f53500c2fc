export const conversationTests = [];
