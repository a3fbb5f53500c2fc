import type { UIMessage } from 'ai';

type Predicate = (state: { messages: UIMessage[] }) => boolean;

export const PREDICATES: Record<'early' | 'first' | 'later', () => Predicate>;
