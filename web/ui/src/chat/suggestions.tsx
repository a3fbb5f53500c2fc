/** The empty page: a greeting, and examples of what the agent's tools can do. */
import { Camera, CloudSun, CreditCard, Database, Image, Lightbulb, type LucideIcon, MapPin, Music } from 'lucide-react';

import { agent } from '../lib/agents';
import { type Key, useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';

interface Suggestion {
  /** The tool that it needs; shown only where the agent has it. */
  tool: string | null;
  title: Key;
  text: Key;
  icon: LucideIcon;
}

const SUGGESTIONS: readonly Suggestion[] = [
  { tool: 'process_payment', title: 'suggestPay', text: 'suggestPayText', icon: CreditCard },
  { tool: 'search_database', title: 'suggestSteps', text: 'suggestStepsText', icon: Database },
  { tool: 'get_weather', title: 'suggestWeather', text: 'suggestWeatherText', icon: CloudSun },
  { tool: 'get_location', title: 'suggestWhere', text: 'suggestWhereText', icon: MapPin },
  { tool: 'change_bgm', title: 'suggestMusic', text: 'suggestMusicText', icon: Music },
  { tool: 'take_photo', title: 'suggestPhoto', text: 'suggestPhotoText', icon: Camera },
  { tool: 'generate_image', title: 'suggestDraw', text: 'suggestDrawText', icon: Image },
  { tool: null, title: 'suggestThink', text: 'suggestThinkText', icon: Lightbulb },
];

/** Two even columns. */
const SHOWN = 8;

export function Suggestions({ onChoose }: { onChoose: (text: string) => void }) {
  const t = useTranslate();
  const tools = useStore(agent)?.tools;
  if (tools === undefined) return null;
  const shown = SUGGESTIONS.filter(({ tool }) => tool === null || tools.some(({ name }) => name === tool));
  return (
    <div className="appear mx-auto flex min-h-full max-w-2xl flex-col justify-center px-1 py-10" data-testid="suggestions">
      <h1 className="text-center text-2xl font-semibold tracking-tight sm:text-[1.75rem]">{t('greeting')}</h1>
      <p className="mt-2 mb-8 text-center text-muted-foreground">{t('greetingMore')}</p>
      <ul className="grid gap-2 sm:grid-cols-2">
        {shown.slice(0, SHOWN).map(({ title, text, icon: Icon }) => (
          <li key={title}>
            <button
              type="button"
              onClick={() => onChoose(t(text))}
              className="flex h-full w-full items-start gap-3 rounded-xl border bg-raised px-3.5 py-3 text-left transition-colors hover:bg-muted"
            >
              <Icon className="mt-0.5 size-[18px] shrink-0 text-primary" aria-hidden />
              <span className="min-w-0">
                <span className="block text-sm font-medium">{t(title)}</span>
                <span className="line-clamp-2 text-sm text-muted-foreground">{t(text)}</span>
              </span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
