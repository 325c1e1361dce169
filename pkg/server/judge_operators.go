package server

import (
	"context"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
)

// operatorJudge implements rpc.Judge for operators: it refuses those whose record
// is gone or says that they were removed. What is remembered is the term's, so
// that a server which comes to lead trusts nothing it learned long ago.
type operatorJudge struct{ server *Server }

var _ rpc.Judge = operatorJudge{}

// Known implements rpc.Judge.
func (j operatorJudge) Known(caller pki.Caller) (verdict error, ok bool) {
	t := j.server.current.Load()
	if t == nil {
		return nil, false
	}
	return t.roster.Known(caller)
}

// Look implements rpc.Judge.
func (j operatorJudge) Look(ctx context.Context, caller pki.Caller) error {
	t, err := j.server.term()
	if err != nil {
		return err
	}
	return t.roster.Look(ctx, caller)
}
