package shardtest

import "strings"

// Play makes everything happen that a script says, in its order. What a step
// asks for that can't be is told in the timeline. The error is that of a settle
// step that came to nothing; the rest of the script is not played then.
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
