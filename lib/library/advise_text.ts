/**
 * The built-in prompts and text of {@link advise}.
 *
 * @module
 */

/**
 * Prompts with clear answers: at each of the first eight tokens the two best logits of SmolLM2-135M-Instruct, a small
 * model, differ by more than 0.25 (by 0.26 for the first prompt, by 0.37 to 3.15 for the others). A width that changes
 * an answer has therefore changed the model.
 */
export const PROMPTS: readonly string[] = [
  "The capital of France is",
  "1, 2, 3, 4, 5,",
  "The opposite of hot is",
  "The chemical symbol for gold is",
  "The largest planet in the solar system is",
  "Photosynthesis is the process by which",
  "We hold these truths to be self-evident,",
  "Question: What is the capital of Italy?\nAnswer:",
];

/**
 * A page of Isaac Newton, Opticks, the First Book (fourth edition, 1730), from Project Gutenberg; in the public domain.
 */
export const TEXT = `I took a black oblong stiff Paper terminated by Parallel Sides, and with
a Perpendicular right Line drawn cross from one Side to the other,
distinguished it into two equal Parts. One of these parts I painted with
a red colour and the other with a blue. The Paper was very black, and
the Colours intense and thickly laid on, that the Phænomenon might be
more conspicuous. This Paper I view'd through a Prism of solid Glass,
whose two Sides through which the Light passed to the Eye were plane and
well polished, and contained an Angle of about sixty degrees; which
Angle I call the refracting Angle of the Prism. And whilst I view'd it,
I held it and the Prism before a Window in such manner that the Sides of
the Paper were parallel to the Prism, and both those Sides and the Prism
were parallel to the Horizon, and the cross Line was also parallel to
it: and that the Light which fell from the Window upon the Paper made an
Angle with the Paper, equal to that Angle which was made with the same
Paper by the Light reflected from it to the Eye. Beyond the Prism was
the Wall of the Chamber under the Window covered over with black Cloth,
and the Cloth was involved in Darkness that no Light might be reflected
from thence, which in passing by the Edges of the Paper to the Eye,
might mingle itself with the Light of the Paper, and obscure the
Phænomenon thereof. These things being thus ordered, I found that if the
refracting Angle of the Prism be turned upwards, so that the Paper may
seem to be lifted upwards by the Refraction, its blue half will be
lifted higher by the Refraction than its red half. But if the refracting
Angle of the Prism be turned downward, so that the Paper may seem to be
carried lower by the Refraction, its blue half will be carried something
lower thereby than its red half. Wherefore in both Cases the Light which
comes from the blue half of the Paper through the Prism to the Eye, does
in like Circumstances suffer a greater Refraction than the Light which
comes from the red half, and by consequence is more refrangible.
`;
