package shardtest

import "strings"

// Play runs the steps of a script in order. A step that is impossible is noted in the timeline.
// If a settle step fails, Play returns its error and skips the rest of the script.
func (s *Shard) Play(script Script) error {
	for _, step := range script.Steps {
		if verb := step.words[0]; verb != "wait" && verb != "settle" {
			s.Timeline.Say("driver", "%s", step)
		}
		err := step.do(s, step.args)
		switch {
		case err == nil:
		case strings.HasPrefix(err.Error(), "nothing happens"):
			s.Timeline.Say("driver", "%v", err)
		default:
			return err
		}
	}
	s.operator.idle()
	return nil
}
