// What people talk about: each row is a conversation whose end is known, whatever happens on the way.

const pay = (amount, recipient) => `call shop__pay ${JSON.stringify({ amount, recipient })}`;

/**
 * `say` is a script of the scripted model; `decide` are the answers to questions, by tool and in the order of its calls;
 * `outputs` are those of the page's tools; `ignore`: nobody answers; `regenerate`: the answer is asked for again.
 */
export const CONVERSATIONS = [
  { name: 'text', turns: [{ say: 'say Good morning, and what a long and winding road this sentence is until it ends.' }] },
  { name: 'three turns', turns: [{ say: 'say one two three' }, { say: 'long 12' }, { say: 'say four five six' }] },
  { name: 'reasoning', turns: [{ say: 'think about the sea' }] },
  { name: 'long answer', turns: [{ say: 'long 160' }] },
  { name: 'text around a tool', turns: [{ say: 'say a moment please then call get_weather {"location":"Tokyo"} then long 20' }] },
  {
    name: 'parallel calls',
    turns: [
      {
        say: 'call get_weather {"location":"Tokyo"} && call shop__price {"item":"lamp"} && call get_weather {"location":"Paris"} then long 10',
      },
    ],
  },
  {
    name: 'approved',
    turns: [{ say: `say one moment then ${pay(50, 'Hanako')} then say all is paid`, decide: { shop__pay: [true] } }],
  },
  { name: 'denied', turns: [{ say: `${pay(51, 'Hanako')} then say as you wish`, decide: { shop__pay: [false] } }] },
  {
    name: 'wallet',
    turns: [{ say: 'call process_payment {"amount":50,"recipient":"Hanako"} then long 8', decide: { process_payment: [true] } }],
  },
  {
    name: 'two approvals',
    turns: [{ say: `${pay(1, 'a')} && ${pay(2, 'b')} then say both done`, decide: { shop__pay: [true, true] } }],
  },
  {
    name: 'one of two',
    turns: [{ say: `${pay(3, 'a')} && ${pay(4, 'b')} then say one done`, decide: { shop__pay: [false, true] } }],
  },
  {
    name: 'question next to a tool',
    turns: [{ say: `${pay(5, 'a')} && call shop__price {"item":"chair"} then long 10`, decide: { shop__pay: [true] } }],
  },
  {
    name: 'sequential approvals',
    turns: [
      {
        say: `say first then ${pay(6, 'a')} then ${pay(7, 'b')} then ${pay(8, 'c')} then say enough`,
        decide: { shop__pay: [true, false, true] },
      },
    ],
  },
  { name: 'client tool', turns: [{ say: 'call pick_color {} then say a fine color', outputs: { pick_color: 'teal' } }] },
  {
    name: 'client tool with approval',
    turns: [
      {
        say: 'call change_bgm {"track_name":"jazz"} then long 6',
        decide: { change_bgm: [true] },
        outputs: { change_bgm: { playing: 'jazz' } },
      },
    ],
  },
  {
    name: 'everything at once',
    turns: [
      {
        say: `say here we go then ${pay(9, 'a')} && call pick_color {} && call get_weather {"location":"Kyoto"} then long 12`,
        decide: { shop__pay: [true] },
        outputs: { pick_color: 'red' },
      },
      { say: 'say and that was that' },
    ],
  },
  { name: 'regenerate', turns: [{ say: 'say hello there my friend' }, { regenerate: true }, { say: 'long 10' }] },
  { name: 'expired', turns: [{ say: `${pay(10, 'nobody')} then say too late`, ignore: true }, { say: 'say go on' }] },
];
