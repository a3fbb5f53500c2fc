export const deliveryTests = [];
