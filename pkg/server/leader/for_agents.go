package leader

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/agents"
)

// agentShard is what a term offers to agents.
type agentShard struct{ *Term }

var _ agents.Shard = agentShard{}

// Agents is what the term offers to package agents.
func (t *Term) Agents() agents.Shard { return agentShard{t} }

func (s agentShard) AgentConnected(id fleet.InstanceID) { s.loop.AgentConnected(id) }

func (s agentShard) AgentDisconnected(id fleet.InstanceID, at time.Time) {
	s.loop.AgentDisconnected(id, at)
}

func (s agentShard) AgentReported(id fleet.InstanceID, r fleet.Report) { s.loop.AgentReport(id, r) }

func (s agentShard) Gone(id fleet.InstanceID) bool {
	i, ok := s.ledger.Get(id)
	return ok && i.Phase.Ending()
}

func (s agentShard) Files() agents.Files { return s.files }

func (s agentShard) Done() <-chan struct{} { return s.ctx.Done() }
