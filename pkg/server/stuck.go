package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/leader"
)

// stuckAgain is how often a leader that can't act reports it.
const stuckAgain = 2 * time.Minute

// reportMissing reports why this leader can't act: in the log, in the health endpoint's response
// and, during a term, among the shard's problems.
func (s *Server) reportMissing(ctx context.Context) {
	var now election.Blocked
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, stuckAgain)
		next, err := s.elector.AwaitBlocked(within, now)
		cancel()
		if err == nil || now != (election.Blocked{}) && now.To == "" {
			now = next
			s.reportBlocked(now)
		}
	}
}

func (s *Server) reportBlocked(p election.Blocked) {
	t := s.current.Load()
	if p == (election.Blocked{}) {
		s.ready.Note("")
		s.stuck.Store("")
		if t != nil {
			t.Over(leader.ReasonStuck)
		}
		s.cfg.Logger.Info("this server is able to act again")
		return
	}
	text := stuckText(p, time.Duration(s.latest.Load().Server.LeaderElection.GiveUp))
	if p.Denied {
		s.ready.Note(deniedText)
		s.cfg.Logger.Error("can't lead", slog.String("reason", deniedText), slog.String("shard", s.cfg.Shard))
		return
	}
	if p.To != "" {
		s.stuck.Store("")
		s.ready.Note(fmt.Sprintf("%s (%s)", text, s.cfg.Now().UTC().Format(time.RFC3339)))
		s.cfg.Logger.Warn("gave up the lead to a server that can act", slog.String("to", p.To), slog.String("because", p.Need.String()))
		return
	}
	s.ready.Note(text)
	s.stuck.Store(text)
	if t != nil {
		t.Report(fleet.Problem{At: s.cfg.Now(), Reason: leader.ReasonStuck, Message: text})
		return
	}
	s.cfg.Logger.Warn("problem", slog.String("reason", leader.ReasonStuck), slog.String("problem", text))
}

// deniedText is shown when the election record can't be created.
const deniedText = "no server can lead: object storage refuses to create the election record, but it does not exist " +
	"(a delete marker that refuses if-absent?)"

// stuckText says what is wrong, and what this server does about it.
func stuckText(p election.Blocked, after time.Duration) string {
	text := fmt.Sprintf("this leader can't act: for %v or longer, %s", config.Duration(after), p.Need)
	switch {
	case p.To != "":
		return fmt.Sprintf("gave the lead to another server, because for %v %s", config.Duration(after), p.Need)
	case p.Rests:
		return text + "; it keeps the lead, because it gave up the lead recently"
	default:
		return text + "; it keeps the lead until a connected standby confirms that it can act"
	}
}
