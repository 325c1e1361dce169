package operators

import (
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// conditionRotating says how far a group is with the replacement of instances that work.
const conditionRotating = "Rotating"

// rotating returns the condition of a group's rotation, if it has begun and can go on.
func rotating(g fleet.Group, r fleet.Rotation) (c *nstancev1.Condition, ok bool) {
	if r.Left == 0 || g.RolloutPaused || g.Removed || g.Disabled != "" || g.RecordMissing != "" || g.Size <= 0 {
		return nil, false // the last decision about the group is older than that
	}
	what := "1 instance is to be replaced, and waits for "
	if r.Left > 1 {
		what = fmt.Sprintf("%d instances are to be replaced, and the next one waits for ", r.Left)
	}
	return trueCondition(conditionRotating, r.Awaits, what+awaited(r)), true
}

// awaited completes a sentence about the next instance of a rotation.
func awaited(r fleet.Rotation) string {
	switch r.Awaits {
	case fleet.AwaitsSettled:
		return "others to settle, until " + r.Until.UTC().Format(time.RFC3339)
	case fleet.AwaitsLeaving:
		return "those that are leaving"
	case fleet.AwaitsSilent:
		return "the replacement of a silent one"
	case fleet.AwaitsSize:
		return "the group to have its size"
	case fleet.AwaitsShardSurge:
		return "room in server.rotation.max_surge, which other groups use"
	case fleet.AwaitsCreates:
		return "creates, which fail"
	default:
		return "another to be ready"
	}
}
