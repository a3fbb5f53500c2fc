// VitePress's own theme in the page's colours, with the fonts of the system: nothing is downloaded for them.

import theme from 'vitepress/theme-without-fonts';
import './style.css';

export default theme;
