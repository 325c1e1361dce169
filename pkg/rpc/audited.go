package rpc

import (
	"context"

	"github.com/nstance/nstance/pkg/audit"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Audited returns the methods that change something, with their kinds of change. Each answer
// to one of them is an audit event. Streams are not included: they carry reports.
func Audited() map[string]audit.Kind {
	return map[string]audit.Kind{
		nstancev1.RegistrationService_RegisterAgent_FullMethodName:    audit.Registration,
		nstancev1.RegistrationService_RegisterOperator_FullMethodName: audit.Registration,
		nstancev1.AgentService_RenewCertificate_FullMethodName:        audit.Registration,
		nstancev1.OperatorService_RenewCertificate_FullMethodName:     audit.Registration,

		nstancev1.OperatorService_RemoveOperator_FullMethodName: audit.Revocation,

		nstancev1.AgentService_SubmitPublicKeys_FullMethodName:      audit.Change,
		nstancev1.OperatorService_RefreshConfig_FullMethodName:      audit.Change,
		nstancev1.OperatorService_UpsertGroup_FullMethodName:        audit.Change,
		nstancev1.OperatorService_DeleteGroup_FullMethodName:        audit.Change,
		nstancev1.OperatorService_ResetGroup_FullMethodName:         audit.Change,
		nstancev1.OperatorService_AbortRollout_FullMethodName:       audit.Change,
		nstancev1.OperatorService_RetryRollout_FullMethodName:       audit.Change,
		nstancev1.OperatorService_CreateInstance_FullMethodName:     audit.Change,
		nstancev1.OperatorService_DeleteInstance_FullMethodName:     audit.Change,
		nstancev1.OperatorService_AcknowledgeDrained_FullMethodName: audit.Change,
	}
}

// record records the outcome of a call.
func (g *guard) record(ctx context.Context, c *call, outcome audit.Outcome, reason error) {
	e := audit.Event{Kind: g.audited[c.method], Outcome: outcome, Action: c.method}
	if e.Kind == "" {
		e.Kind = audit.Call
	}
	if c.conn != nil {
		e.Actor = c.conn.spiffe
	}
	if c.from != nil {
		e.From = c.from.String()
	}
	if reason != nil {
		e.Reason = reason.Error()
	}
	c.note.Fill(&e)
	g.audit.Record(ctx, e)
}
