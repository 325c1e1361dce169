//go:build integration

package mainjob

import (
	"syscall"
	"testing"
)

// TestGate tells the core of the main job, which every change has to pass: a stack with a
// standby comes up, a group is scaled, a machine is killed and replaced, the leader is killed,
// and all of it goes.
func TestGate(t *testing.T) {
	tell(t, "process", true,
		story{"01 two shards come up, two agents each", comesUp},
		story{"02 scale to five and back to one, the oldest leave first", scales},
		story{"03 a killed agent is replaced", func(s *stack) {
			leads, _ := s.leader()
			replacesOneBy(s, leads)
		}},
		story{"07 SIGKILL fails over", func(s *stack) { failsOver(s, syscall.SIGKILL) }},
	)
}
