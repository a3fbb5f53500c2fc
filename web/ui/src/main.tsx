/** Starts the page. */
import { createRoot } from 'react-dom/client';

import { App } from './app';
import { followBudget } from './lib/budget';
import { startConnection } from './lib/connection';
import { applyLanguage } from './lib/i18n';
import { followSession } from './lib/session';
import { applyTheme } from './lib/settings';
import './styles.css';

applyTheme();
applyLanguage();
startConnection();
followSession();
followBudget();

const root = document.getElementById('root');
if (root) createRoot(root).render(<App />);
