/** Formulas: KaTeX with its style and fonts. */
import 'katex/dist/katex.min.css';

export { math } from '@streamdown/math';
