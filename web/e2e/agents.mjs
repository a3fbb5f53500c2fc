// Several agents behind one page: choosing one for a new chat, and seeing who answers in another.

import assert from 'node:assert/strict';

import { PHONE } from './browser.mjs';
import { accessible } from './look.mjs';

/** The configuration of a server with two agents, whose tools differ. */
export const SEVERAL = `[demo]
pace = "0ms"
[[agents]]
id = "weather"
name = "Weather desk"
tools = ["get_weather"]
[[agents]]
id = "bank"
name = "The bank of Kyoto, Paris and many other places"
tools = ["process_payment"]
`;

const PAYMENT = 'call process_payment {"amount": 5, "recipient": "Hanako"}';

export const agentTests = [
  [
    'agents: with one of them there is nothing to choose',
    async (open) => {
      const visit = await open();
      await visit.get('suggestions').waitFor();
      await visit.say('say hi');
      await visit.answered();
      for (const id of ['agent-choice', 'chat-agent']) assert.equal(await visit.get(id).count(), 0, id);
    },
  ],
  ...['sse', 'live'].map((mode) => [
    `agents: one is chosen with the keyboard alone, and stays, ${mode}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.several });
      if (mode === 'live') {
        await visit.get('mode').click();
        await visit.page.getByRole('menuitemradio').last().click();
      }
      const choice = visit.get('agent-choice');
      assert.equal(await choice.getAttribute('aria-label'), 'Agent: Weather desk');
      assert.equal(await visit.page.getByText('Pay someone').count(), 0);
      await visit.get('composer').fill('a draft');
      await choice.focus();
      await visit.page.keyboard.press('Enter');
      // A key that is pressed before the menu has the keyboard is lost.
      const isOn = (name) =>
        visit.page.evaluate(
          (name) => document.activeElement?.role === 'menuitemradio' && document.activeElement.textContent.includes(name),
          name,
        );
      await visit.until(() => isOn('Weather desk'), 'the chosen agent to have the focus');
      await visit.page.keyboard.press('ArrowDown');
      await visit.until(() => isOn('bank'), 'the other agent to have the focus');
      await visit.page.keyboard.press('Enter');
      await choice.getByText('The bank').waitFor();
      // What was being written is still there.
      assert.equal(await visit.get('composer').inputValue(), 'a draft');
      await visit.say(PAYMENT);
      await visit.get('approve').click();
      await visit.cardIs('process_payment', 'done');
      await visit.answered();
      await visit.get('chat-agent').getByText('The bank').waitFor();
      const agent = async () => (await servers.several.json(`/api/chats/${visit.chat}`)).agent;
      assert.equal(await agent(), 'bank');

      // The choice is that of the next new chat, too; another one changes nothing here.
      await visit.get('new-chat').click();
      await visit.get('agent-choice').getByText('The bank').waitFor();
      await visit.get('agent-choice').click();
      await visit.page.getByRole('menuitemradio', { name: 'Weather desk' }).click();
      await visit.get('agent-choice').getByText('Weather desk').waitFor();
      await visit.page.goto(visit.address());
      await visit.get('chat-agent').getByText('The bank').waitFor();
      await visit.page.reload();
      await visit.get('chat-agent').getByText('The bank').waitFor();
      await visit.say('say still the bank');
      await visit.sees('still the bank');
      assert.equal(await agent(), 'bank');
    },
  ]),
  ...['light', 'dark'].flatMap((colorScheme) =>
    [undefined, PHONE].map((viewport) => [
      `agents: no serious fault for screen readers, ${colorScheme}, ${viewport ? 'phone' : 'desktop'}`,
      async (open, { servers }) => {
        const name = `agents-${colorScheme}-${viewport ? 'phone' : 'desktop'}`;
        const visit = await open({ server: servers.several, colorScheme, ...(viewport && { viewport }) });
        await visit.get('agent-choice').click();
        await visit.page.getByRole('menuitemradio', { name: /bank/ }).waitFor();
        await accessible(visit, 'the choice');
        await visit.picture(`${name}-choice`);
        await visit.page.getByRole('menuitemradio', { name: /bank/ }).click();
        await visit.say('say hi, and a title that is longer than there is room for');
        await visit.answered();
        await visit.get('chat-agent').waitFor();
        await accessible(visit, 'a chat');
        await visit.picture(name);
        // Nothing is pushed out of the window.
        const width = await visit.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        assert.ok(width <= 0, `${width} pixels too wide`);
      },
    ]),
  ),
];
