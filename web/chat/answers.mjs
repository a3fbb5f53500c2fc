export const answerTests = [];
