/** An app of an MCP server, in a frame without an origin: it sees the call and nothing else of the page. */
import { MCPAppRenderer } from '@ai-sdk/react';
import { useMemo, useState, useSyncExternalStore } from 'react';

import type { ToolPart } from '../chat/calls';
import { useTranslate } from '../lib/i18n';
import type { McpApp } from './mcp-app';

/** What an app may take of the page's height, whatever it asks for. */
const MIN_HEIGHT = 80;
const MAX_HEIGHT = 560;

export default function McpAppView({ part, app }: { part: ToolPart; app: McpApp }) {
  const t = useTranslate();
  const [height, setHeight] = useState(240);
  const theme = useTheme();
  const handlers = useMemo(
    () => ({
      onSizeChange: (size: { height?: number } | undefined) => {
        if (typeof size?.height === 'number' && Number.isFinite(size.height)) {
          setHeight(Math.min(Math.max(Math.ceil(size.height), MIN_HEIGHT), MAX_HEIGHT));
        }
      },
    }),
    [],
  );
  const hostContext = useMemo(() => ({ theme, displayMode: 'inline' as const }), [theme]);
  if (app.resource === undefined) {
    return (
      <p className="px-3.5 pb-3 text-xs text-muted-foreground" data-testid="mcp-app-missing">
        {t('appMissing')}
      </p>
    );
  }
  return (
    <div className="border-t p-2" data-testid="mcp-app">
      <MCPAppRenderer
        part={part}
        resource={app.resource}
        handlers={handlers}
        hostContext={hostContext}
        hostInfo={HOST}
        sandbox={{
          url: 'app-frame.html',
          title: t('appTitle'),
          className: 'block w-full rounded-lg bg-background',
          style: { border: 0, height, colorScheme: theme },
          // A frame without an origin has none to check; messages are accepted by the window that they come from.
          targetOrigin: '*',
          outerSandbox: 'allow-scripts',
          innerSandbox: 'allow-scripts',
        }}
      />
    </div>
  );
}

const HOST = { name: 'adk-bridge', version: '1' };

/** How the page looks now. */
function useTheme(): 'light' | 'dark' {
  return useSyncExternalStore(subscribe, () => (document.documentElement.classList.contains('dark') ? 'dark' : 'light'));
}

function subscribe(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ['class'] });
  return () => observer.disconnect();
}
