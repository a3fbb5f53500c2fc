// Approvals as conversations in a table, for every client that is tried.

export const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
export const SEARCH = 'call search_database {"query":"all users"}';
export const UPDATE = 'call update_database {"query":"all users","set":"status = inactive"}';
const TRACK = 'call change_bgm {"track_name":"jazz"}';
const WEATHER = 'call get_weather {"location":"Tokyo"}';

const NO = { approved: false, reason: 'too expensive today' };

/**
 * Each round answers all questions of one pause, in the order in which they are written, and supplies outputs where a
 * client tool was approved; `states` and `text` are what the reply comes to. Every round is one request.
 */
export const APPROVALS = [
  {
    name: 'approved',
    say: PAY,
    rounds: [{ process_payment: true }],
    states: { process_payment: 'output-available' },
    text: /Paid 50 USD to Hanako/,
  },
  {
    name: 'denied with a reason',
    say: PAY,
    rounds: [{ process_payment: NO }],
    states: { process_payment: 'output-denied' },
    text: /declined process_payment \(too expensive today\)/,
  },
  {
    name: 'denied without a reason',
    say: `say one moment then ${PAY}`,
    rounds: [{ process_payment: false }],
    states: { process_payment: 'output-denied' },
    text: /one moment.*declined process_payment, so/,
  },
  {
    name: 'two in parallel, both approved',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ process_payment: true, search_database: true }],
    states: { process_payment: 'output-available', search_database: 'output-available' },
    text: /Paid 50.*Found 10 users/,
  },
  {
    name: 'two in parallel, answered backwards and differently',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ search_database: NO, process_payment: true }],
    states: { process_payment: 'output-available', search_database: 'output-denied' },
    text: /Paid 50.*declined search_database/,
  },
  {
    name: 'two in parallel, both denied',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ process_payment: false, search_database: NO }],
    states: { process_payment: 'output-denied', search_database: 'output-denied' },
    text: /declined process_payment.*declined search_database/,
  },
  {
    name: 'three in parallel, mixed',
    say: `${PAY} && ${SEARCH} && ${UPDATE}`,
    rounds: [{ search_database: true, update_database: NO, process_payment: true }],
    states: {
      process_payment: 'output-available',
      search_database: 'output-available',
      update_database: 'output-denied',
    },
    text: /Paid 50.*Found 10 users.*declined update_database/,
  },
  {
    name: 'a server tool next to a question',
    say: `${WEATHER} && ${PAY}`,
    rounds: [{ process_payment: true }],
    states: { get_weather: 'output-available', process_payment: 'output-available' },
    text: /in Tokyo.*Paid 50/,
  },
  {
    name: 'one after the other',
    say: 'search the database and update it',
    rounds: [{ search_database: true }, { update_database: true }],
    states: { search_database: 'output-available', update_database: 'output-available' },
    text: /Found 10 users.*[Uu]pdated/,
  },
  {
    name: 'one after the other, the second denied',
    say: `${SEARCH} then ${UPDATE}`,
    rounds: [{ search_database: true }, { update_database: NO }],
    states: { search_database: 'output-available', update_database: 'output-denied' },
    text: /Found 10 users.*declined update_database/,
  },
  {
    name: 'one after the other, the first denied',
    say: `say first then ${SEARCH} then say second then ${UPDATE}`,
    rounds: [{ search_database: NO }, { update_database: true }],
    states: { search_database: 'output-denied', update_database: 'output-available' },
    text: /first.*second.*[Uu]pdated/,
  },
  {
    name: 'a client tool denied',
    say: TRACK,
    rounds: [{ change_bgm: NO }],
    states: { change_bgm: 'output-denied' },
    text: /declined change_bgm/,
  },
  {
    name: 'a tool that fails after it was approved',
    say: 'call process_payment {"amount":5000,"recipient":"Hanako"}',
    rounds: [{ process_payment: true }],
    states: { process_payment: 'output-error' },
    text: /process_payment did not work/,
  },
];
