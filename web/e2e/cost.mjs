export const costTests = [];
