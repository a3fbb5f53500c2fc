/** Who answers in the open chat; for a new one, the choice. With one agent there is nothing to show. */
import { Bot, ChevronDown } from 'lucide-react';

import { dropSession } from './chat/sessions';
import { agent, agentIdOf, chosenAgent } from './lib/agents';
import { agents, chats } from './lib/connection';
import { useTranslate } from './lib/i18n';
import { useStore } from './lib/store';
import { Button } from './ui/button';
import { Menu, MenuChoice } from './ui/menu';

export function AgentSwitch({ chatId }: { chatId: string }) {
  const t = useTranslate();
  const all = useStore(agents);
  const current = useStore(agent);
  useStore(chats);
  const kept = agentIdOf(chatId);
  // One that is gone is named even where only one other is left.
  if (all === null || (all.length < 2 && (kept === undefined || current !== null))) return null;
  if (kept !== undefined) {
    const name = current?.name ?? t('agentGone', { agent: kept });
    return (
      <p
        className={`flex max-w-[32%] min-w-0 sm:max-w-[40%] shrink-0 items-center gap-1.5 rounded-lg px-2 text-sm ${current === null ? 'text-danger' : 'text-muted-foreground'}`}
        title={t('answeredBy', { agent: name })}
        data-testid="chat-agent"
      >
        <Bot className="size-4 shrink-0" aria-hidden />
        <span className="sr-only">{t('agent')}: </span>
        <span className="truncate">{name}</span>
      </p>
    );
  }
  const choose = (id: string) => {
    if (id === current?.id) return;
    // Its connection names the agent that was chosen before.
    dropSession(chatId);
    chosenAgent.set(id);
  };
  return (
    <Menu
      trigger={
        <Button
          look="ghost"
          className="max-w-[60%] min-w-0 px-2"
          aria-label={`${t('agent')}: ${current?.name ?? ''}`}
          title={t('chooseAgent')}
          data-testid="agent-choice"
        >
          <Bot className="size-4 shrink-0" aria-hidden />
          <span className="truncate">{current?.name}</span>
          <ChevronDown className="size-4 shrink-0" aria-hidden />
        </Button>
      }
    >
      <MenuChoice
        label={t('chooseAgent')}
        value={current?.id ?? ''}
        options={all.map(({ id, name, status }) => [id, status === 'ready' ? name : t('agentUnreachable', { agent: name })])}
        onChange={choose}
      />
    </Menu>
  );
}
