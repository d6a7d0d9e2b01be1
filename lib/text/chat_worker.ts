/**
 * The worker that renders chat templates for {@link renderChat}.
 *
 * @module
 */

import { serve } from "./deadline.ts";
import { render } from "./jinja/render.ts";
import type { RenderRequest } from "./chat.ts";

serve({
  render: ({ template, variables, now, milliseconds }: RenderRequest) => render(template, variables, now, milliseconds),
});
