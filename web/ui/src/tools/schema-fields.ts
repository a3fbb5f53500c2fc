/**
 * A JSON schema as the fields of a form, and what was entered in them as a value of that schema.
 *
 * It reads what models, Pydantic and Zod write: names in capitals, `$ref`, a type or nothing, enumerations. What it cannot
 * show as a field of its own is entered as JSON.
 */
import { humanName } from '../lib/human-name';

export type Entered = string | boolean;
export type Entries = Readonly<Record<string, Entered>>;

export interface Field {
  /** Tells it apart from the others. */
  key: string;
  /** Where its value lies; empty where the schema is no object. */
  path: readonly string[];
  label: string;
  hint: string | undefined;
  kind: 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices' | 'lines' | 'json';
  isRequired: boolean;
  choices: readonly unknown[];
  /** What the choices are called. */
  titles: readonly string[];
  /** What kind of text it is, as `<input type>` knows it. */
  inputType: string;
  schema: Schema;
  initial: Entered;
}

export type Problem = 'missing' | 'number' | 'integer' | 'limits' | 'format' | 'json';

export type Reading = { value: unknown } | { problems: Readonly<Record<string, Problem>> };

type Schema = Readonly<Record<string, unknown>>;

/** Deeper ones are entered as JSON. */
const MAX_DEPTH = 4;
/** A longer form is no help. */
const MAX_FIELDS = 40;

const INPUT_TYPES: Readonly<Record<string, string>> = {
  date: 'date',
  time: 'time',
  'date-time': 'datetime-local',
  email: 'email',
  uri: 'url',
  password: 'password',
};

/** The fields for a value of this schema; nothing where the schema does not tell what is wanted. */
export function fieldsOf(schema: unknown): Field[] | undefined {
  const fields = isSchema(schema) ? collect(schema, schema, [], true, 0) : [];
  // A form without fields is answered with a yes or a no.
  if (fields.length === 0 && isSchema(schema)) return [];
  const tells = fields.length > 0 && fields.length <= MAX_FIELDS;
  return tells && !(fields.length === 1 && fields[0]?.kind === 'json') ? fields : undefined;
}

/** The field for an answer of which nothing is known: words. */
export function wordsField(): Field {
  return fieldOf({ type: 'string' }, [], true);
}

/** What was entered, as a value; or what is wrong with it, by field. */
export function readEntries(fields: readonly Field[], entries: Entries): Reading {
  const problems: Record<string, Problem> = {};
  const values: (readonly [readonly string[], unknown])[] = [];
  for (const field of fields) {
    const entered = entries[field.key] ?? field.initial;
    const isEmpty = typeof entered === 'string' && entered.trim() === '';
    if (isEmpty && !field.isRequired) continue;
    const read = isEmpty ? { problem: 'missing' as const } : readOne(field, entered);
    if ('problem' in read) problems[field.key] = read.problem;
    else values.push([field.path, read.value]);
  }
  return Object.keys(problems).length > 0 ? { problems } : { value: assemble(values) };
}

/** How a value is entered in its field: the way back. */
export function enteredOf(field: Field, value: unknown): Entered {
  switch (field.kind) {
    case 'boolean':
      return value === true;
    case 'choice': {
      const index = field.choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(value));
      return index === -1 ? '' : String(index);
    }
    case 'choices':
      return Array.isArray(value) ? chosen(field, (choice) => value.includes(choice)) : '';
    case 'lines':
      return Array.isArray(value) ? value.map(String).join('\n') : '';
    case 'json':
      return value === undefined ? '' : JSON.stringify(value, null, 2);
    default:
      return value === undefined || value === null ? '' : String(value);
  }
}

/** Several choices, as they are entered: their places. */
function chosen({ choices }: Pick<Field, 'choices'>, isChosen: (choice: unknown, index: number) => boolean): string {
  return choices.flatMap((choice, index) => (isChosen(choice, index) ? [index] : [])).join(',');
}

/** The places of the choices that are entered. */
export function placesOf(entered: Entered): number[] {
  return typeof entered === 'string' && entered !== '' ? entered.split(',').map(Number) : [];
}

/** What is entered when a choice is made, or made no more. */
export function withChoice(field: Field, entered: Entered, place: number, isMade: boolean): Entered {
  const before = placesOf(entered);
  return chosen(field, (_, index) => (index === place ? isMade : before.includes(index)));
}

function collect(schema: Schema, root: Schema, path: readonly string[], isRequired: boolean, depth: number): Field[] {
  const own = settled(schema, root, 0);
  const properties = own['properties'];
  if (typeOf(own) !== 'object' || !isSchema(properties) || depth >= MAX_DEPTH) return [fieldOf(own, path, isRequired)];
  const required = Array.isArray(own['required']) ? (own['required'] as unknown[]) : [];
  return inOrder(Object.keys(properties), required).flatMap((name) => {
    const inner = properties[name];
    const isNeeded = isRequired && required.includes(name);
    return collect(isSchema(inner) ? inner : {}, root, [...path, name], isNeeded, depth + 1);
  });
}

/** What is needed comes first, as the schema's list has it: on their way here properties lose the order of their author. */
function inOrder(names: string[], required: readonly unknown[]): string[] {
  const place = (name: string) => (required.includes(name) ? required.indexOf(name) : required.length);
  return names.toSorted((one, other) => place(one) - place(other));
}

/** A schema without detours: references followed, and a type that may also be nothing as the type that it else is. */
function settled(schema: Schema, root: Schema, depth: number): Schema {
  if (depth > 8) return {};
  const { $ref, anyOf, oneOf, allOf, ...own } = schema;
  const next = (inner: unknown) => ({ ...settled(isSchema(inner) ? inner : {}, root, depth + 1), ...own });
  if (typeof $ref === 'string') return next(lookUp(root, $ref));
  const all = [anyOf, oneOf].find(Array.isArray) as unknown[] | undefined;
  const others = all?.filter((option) => !isSchema(option) || typeOf(option) !== 'null');
  if (others?.length === 1) return next(others[0]);
  if (others?.every((option) => isSchema(option) && 'const' in option)) {
    const titles = others.map((option) => (option as Schema)['title']);
    return { ...own, enum: others.map((option) => (option as Schema)['const']), enumNames: titles };
  }
  if (Array.isArray(allOf) && allOf.length === 1) return next(allOf[0]);
  return own;
}

function lookUp(root: Schema, reference: string): unknown {
  if (!reference.startsWith('#/')) return {};
  const names = reference
    .slice(2)
    .split('/')
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));
  return names.reduce<unknown>((at, name) => (isSchema(at) && Object.hasOwn(at, name) ? at[name] : undefined), root);
}

function typeOf(schema: Schema): string | undefined {
  const { type } = schema;
  const names = (Array.isArray(type) ? type : [type]).filter((name): name is string => typeof name === 'string');
  const lower = names.map((name) => name.toLowerCase());
  const others = lower.filter((name) => name !== 'null');
  if (others.length > 1) return undefined;
  return others[0] ?? lower[0] ?? (isSchema(schema['properties']) ? 'object' : undefined);
}

function fieldOf(schema: Schema, path: readonly string[], isRequired: boolean): Field {
  const items = typeOf(schema) === 'array' && isSchema(schema['items']) ? settled(schema['items'], schema, 0) : undefined;
  const source = Array.isArray(items?.['enum']) ? items : schema;
  const all: unknown[] = Array.isArray(source['enum']) ? source['enum'] : 'const' in source ? [source['const']] : [];
  const names: unknown[] = Array.isArray(source['enumNames']) ? source['enumNames'] : [];
  const shown = all.map((choice, index) => [choice, names[index]] as const).filter(([choice]) => choice !== null);
  const { title, description, format, default: preset } = schema;
  const own = typeof title === 'string' && title !== '' ? title : humanName(path.at(-1) ?? '');
  const field: Omit<Field, 'initial'> = {
    key: JSON.stringify(path),
    path,
    label: [...path.slice(0, -1).map(humanName), own].filter((word) => word !== '').join(' › '),
    hint: typeof description === 'string' ? description : undefined,
    kind: source === items ? 'choices' : kindOf(schema, all),
    isRequired,
    choices: shown.map(([choice]) => choice),
    titles: shown.map(([choice, name]) => (typeof name === 'string' ? name : titleOf(choice))),
    inputType: (typeof format === 'string' ? INPUT_TYPES[format] : undefined) ?? 'text',
    schema,
  };
  return { ...field, initial: enteredOf({ ...field, initial: '' }, preset) };
}

function kindOf(schema: Schema, choices: readonly unknown[]): Field['kind'] {
  if (choices.length > 0) return 'choice';
  const { items } = schema;
  switch (typeOf(schema)) {
    case 'string':
      return 'text';
    case 'number':
      return 'number';
    case 'integer':
      return 'integer';
    case 'boolean':
      return 'boolean';
    case 'array':
      return isSchema(items) && typeOf(items) === 'string' ? 'lines' : 'json';
    default:
      return 'json';
  }
}

function titleOf(choice: unknown): string {
  return typeof choice === 'string' ? choice : JSON.stringify(choice);
}

type One = { value: unknown } | { problem: Problem };

function readOne(field: Field, entered: Entered): One {
  if (typeof entered === 'boolean') return { value: entered };
  switch (field.kind) {
    case 'choice':
      return field.choices[Number(entered)] === undefined ? { problem: 'missing' } : { value: field.choices[Number(entered)] };
    case 'number':
    case 'integer':
      return readNumber(field, Number(entered.trim()));
    case 'choices':
      return readChoices(
        field,
        placesOf(entered).map((place) => field.choices[place]),
      );
    case 'lines':
      return { value: entered.split('\n').filter((line) => line.trim() !== '') };
    case 'json':
      return readJson(entered);
    default:
      return readText(field, entered);
  }
}

function readNumber({ kind, schema }: Field, value: number): One {
  if (!Number.isFinite(value)) return { problem: 'number' };
  if (kind === 'integer' && !Number.isInteger(value)) return { problem: 'integer' };
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  const isOutside =
    (typeof minimum === 'number' && value < minimum) ||
    (typeof maximum === 'number' && value > maximum) ||
    (typeof exclusiveMinimum === 'number' && value <= exclusiveMinimum) ||
    (typeof exclusiveMaximum === 'number' && value >= exclusiveMaximum);
  return isOutside ? { problem: 'limits' } : { value };
}

function readChoices({ schema }: Field, value: unknown[]): One {
  const { minItems, maxItems } = schema;
  const isOutside =
    (typeof minItems === 'number' && value.length < minItems) || (typeof maxItems === 'number' && value.length > maxItems);
  return isOutside ? { problem: 'limits' } : { value };
}

function readText({ schema, inputType }: Field, text: string): One {
  const { minLength, maxLength, pattern } = schema;
  const length = [...text].length;
  if (typeof minLength === 'number' && length < minLength) return { problem: 'limits' };
  if (typeof maxLength === 'number' && length > maxLength) return { problem: 'limits' };
  if (typeof pattern === 'string' && !fits(pattern, text)) return { problem: 'format' };
  // The browser gives the user's own time, without its zone.
  if (inputType === 'datetime-local' && !Number.isNaN(Date.parse(text))) return { value: new Date(text).toISOString() };
  return { value: text };
}

/** A pattern that this browser cannot read holds nobody up. */
function fits(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(text);
  } catch {
    return true;
  }
}

export function readJson(text: string): One {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return { problem: 'json' };
  }
}

/** Puts values where their paths lead; a value with no path is the whole. */
function assemble(values: readonly (readonly [readonly string[], unknown])[]): unknown {
  const whole = values.find(([path]) => path.length === 0);
  if (whole !== undefined) return whole[1];
  const groups = new Map<string, (readonly [readonly string[], unknown])[]>();
  for (const [[name = '', ...rest], value] of values) groups.set(name, [...(groups.get(name) ?? []), [rest, value]]);
  return Object.fromEntries([...groups].map(([name, inner]) => [name, assemble(inner)]));
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
