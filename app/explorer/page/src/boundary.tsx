// A room that cannot be drawn says so and offers its start, instead of leaving half a page.
import { Component, type ComponentChildren } from 'preact';
import { Button } from './ui';
import { t } from './words';

export class Boundary extends Component<{ start: string; children: ComponentChildren }, { problem: string | null }> {
  state = { problem: null as string | null };
  componentDidCatch(error: unknown) {
    console.error(error);
    this.setState({ problem: error instanceof Error ? error.message : String(error) });
  }
  render() {
    const { problem } = this.state;
    if (problem === null) return this.props.children;
    // What was open is part of what cannot be drawn: only a page that is loaded anew is sure to be without it.
    const restart = () => {
      history.replaceState(null, '', this.props.start);
      location.reload();
    };
    return (
      <div class="banner error" role="alert">
        <strong>{t('broken')}</strong> {problem} <Button small label={t('broken.start')} onClick={restart} />
      </div>
    );
  }
}
