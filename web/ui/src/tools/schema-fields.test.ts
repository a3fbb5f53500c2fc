/** Forms from schemas: what is shown, what is read, and that a value survives the way there and back. */
import fc from 'fast-check';
import { expect, it } from 'vitest';

import { enteredOf, type Field, fieldsOf, readEntries, withChoice } from './schema-fields';

const shown = (fields: Field[] | undefined) =>
  fields?.map(({ path, kind, isRequired }) => `${path.join('.')}:${kind}${isRequired ? '!' : ''}`);

const cases: [string, unknown, string[] | undefined][] = [
  ['a number', { type: 'integer' }, [':integer!']],
  ['the names of Google', { type: 'STRING' }, [':text!']],
  ['nothing known', {}, undefined],
  ['no schema', undefined, undefined],
  ['no schema either', 'string', undefined],
  ['anything at all', { type: ['string', 'integer'] }, undefined],
  [
    'an object',
    {
      type: 'object',
      properties: { b: {}, c: { type: 'string' }, days: { type: 'number' }, city: { type: 'string' } },
      required: ['days', 'city'],
    },
    ['days:number!', 'city:text!', 'b:json', 'c:text'],
  ],
  [
    'what Pydantic writes',
    {
      $defs: { Seat: { enum: ['aisle', 'window'], type: 'string' } },
      properties: {
        seat: { $ref: '#/$defs/Seat' },
        note: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null },
        meals: { type: 'array', items: { type: 'string' } },
      },
      required: ['seat', 'meals'],
    },
    ['seat:choice!', 'meals:lines!', 'note:text'],
  ],
  [
    'objects in objects',
    {
      type: 'object',
      properties: { to: { type: 'object', properties: { zip: { type: 'string' } }, required: ['zip'] }, raw: {} },
      required: ['to'],
    },
    ['to.zip:text!', 'raw:json'],
  ],
  ['choices one by one', { oneOf: [{ const: 1 }, { const: 'two' }] }, [':choice!']],
  [
    'what MCP servers ask for',
    {
      type: 'object',
      properties: {
        hero: {
          type: 'string',
          oneOf: [
            { const: 'h1', title: 'Superman' },
            { const: 'h2', title: 'Wonder Woman' },
          ],
        },
        tunes: { type: 'array', items: { type: 'string', enum: ['Guitar', 'Bass'] } },
        fish: {
          type: 'array',
          items: {
            anyOf: [
              { const: 'f1', title: 'Tuna' },
              { const: 'f2', title: 'Trout' },
            ],
          },
        },
      },
    },
    ['hero:choice', 'tunes:choices', 'fish:choices'],
  ],
  ['a yes or a no', { type: 'object', properties: {} }, []],
  ['a schema that names itself', { $ref: '#' }, undefined],
];

it.each(cases)('%s', (_name, schema, expected) => {
  expect(shown(fieldsOf(schema))).toEqual(expected);
});

const problems: [string, object, string, string | undefined][] = [
  ['a needed text', { type: 'string' }, ' ', 'missing'],
  ['words for a number', { type: 'number' }, 'many', 'number'],
  ['half a piece', { type: 'integer' }, '1.5', 'integer'],
  ['too many', { type: 'integer', maximum: 3 }, '4', 'limits'],
  ['as many as may be', { type: 'integer', maximum: 3 }, '3', undefined],
  ['too long', { type: 'string', maxLength: 2 }, 'abc', 'limits'],
  ['two characters that are longer as code', { type: 'string', maxLength: 2 }, '🌉🌉', undefined],
  ['another form', { type: 'string', pattern: '^[a-z]+$' }, 'A1', 'format'],
  ['a pattern that is none', { type: 'string', pattern: '(' }, 'anything', undefined],
];

it.each(problems)('%s', (_name, schema, entered, expected) => {
  const fields = fieldsOf(schema) ?? [];
  const read = readEntries(fields, { '[]': entered });
  expect('problems' in read ? read.problems['[]'] : undefined).toBe(expected);
});

it('leaves out what was left empty, and names that are special to no one else', () => {
  const fields = fieldsOf({
    type: 'object',
    properties: JSON.parse('{"a":{"type":"string"},"b":{"type":"string"},"__proto__":{"type":"string"}}') as object,
  });
  const read = readEntries(fields ?? [], { '["a"]': 'x', '["__proto__"]': 'y' });
  expect(JSON.stringify(read)).toBe('{"value":{"a":"x","__proto__":"y"}}');
});

const leaf = fc.oneof(
  fc.record({ schema: fc.constant({ type: 'string' }), value: fc.string({ minLength: 1 }).filter((text) => text.trim() !== '') }),
  fc.record({ schema: fc.constant({ type: 'integer' }), value: fc.integer() }),
  fc.record({
    schema: fc.constant({ type: 'number' }),
    value: fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => n + 0),
  }),
  fc.record({ schema: fc.constant({ type: 'boolean' }), value: fc.boolean() }),
  fc.constantFrom(1, 'two', true, 3.5).map((value) => ({ schema: { enum: [1, 'two', true, 3.5] }, value })),
  fc.record({ schema: fc.constant({ type: 'object' }), value: fc.dictionary(fc.string(), fc.integer()) }),
  fc
    .array(fc.stringMatching(/^\w+$/), { minLength: 1 })
    .map((value) => ({ schema: { type: 'array', items: { type: 'string' } }, value })),
);

it('brings back what is entered, whatever the schema', () => {
  const at = (value: unknown, path: readonly string[]) =>
    path.reduce<unknown>((inner, name) => (inner as Record<string, unknown>)[name], value);
  fc.assert(
    fc.property(fc.dictionary(fc.stringMatching(/^[a-z]\w*$/), leaf, { minKeys: 2 }), (properties) => {
      const names = Object.keys(properties);
      const schema = {
        type: 'object',
        properties: Object.fromEntries(Object.entries(properties).map(([name, { schema }]) => [name, schema])),
        required: names,
      };
      const value = Object.fromEntries(Object.entries(properties).map(([name, leaf]) => [name, leaf.value]));
      const fields = fieldsOf(schema) ?? [];
      const entries = Object.fromEntries(fields.map((field) => [field.key, enteredOf(field, at(value, field.path))]));
      expect(readEntries(fields, entries)).toEqual({ value });
    }),
  );
});

it('takes any schema without harm', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (schema) => {
      const fields = fieldsOf(schema) ?? [];
      readEntries(fields, {});
    }),
  );
});

it('takes several choices by their titles', () => {
  const items = {
    anyOf: [
      { const: 'f1', title: 'Tuna' },
      { const: 'f2', title: 'Trout' },
      { const: 'f3', title: 'Salmon' },
    ],
  };
  const schema = { type: 'object', properties: { fish: { type: 'array', items, minItems: 1, maxItems: 2, default: ['f2'] } } };
  const [fish] = fieldsOf(schema) ?? [];
  if (fish === undefined) throw new Error('no field');
  expect(fish.titles).toEqual(['Tuna', 'Trout', 'Salmon']);
  const both = withChoice(fish, fish.initial, 0, true);
  expect(readEntries([fish], { [fish.key]: both })).toEqual({ value: { fish: ['f1', 'f2'] } });
  const all = withChoice(fish, both, 2, true);
  expect(readEntries([fish], { [fish.key]: all })).toEqual({ problems: { [fish.key]: 'limits' } });
  expect(readEntries([fish], { [fish.key]: withChoice(fish, fish.initial, 1, false) })).toEqual({ value: {} });
});
