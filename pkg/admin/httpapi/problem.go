package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
)

// Problem is an answer that is an error, as RFC 9457 defines it.
type Problem struct {
	Title  string `json:"title" doc:"What the status means"`
	Status int    `json:"status" doc:"The HTTP status"`
	Detail string `json:"detail" doc:"What is wrong, and what would be valid: the sentence that nstance-admin prints"`
	// Fields has one entry for each invalid field.
	Fields []rpc.Violation `json:"fields,omitempty" doc:"Every invalid field of the request or of a config"`
	// Removals has one entry for each group of an unconfirmed config.
	Removals []admin.Removal `json:"removals,omitempty" doc:"Groups that a config removes or empties, and that accept_removals has to name"`
	Shards   []Failure       `json:"shards,omitempty" doc:"What each shard answered, if there are several"`
}

// Failure is the error of one shard.
type Failure struct {
	Shard  string          `json:"shard"`
	Status int             `json:"status" doc:"The HTTP status that this shard alone would have caused"`
	Detail string          `json:"detail" doc:"What is wrong"`
	Fields []rpc.Violation `json:"fields,omitempty" doc:"Every invalid field of the request or of the shard's config"`
	// Removals has one entry for each group of an unconfirmed config.
	Removals []admin.Removal `json:"removals,omitempty" doc:"Groups that the shard's config removes or empties"`

	outcome bool // it repeats the outcome of a refresh
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (*Problem) ContentType(string) string { return problemType }

const problemType = "application/problem+json"

func problem(status int, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// invalidField is 400 for one parameter.
func invalidField(field, description string) *Problem {
	p := problem(http.StatusBadRequest, field+": "+description)
	p.Fields = []rpc.Violation{{Field: field, Description: description}}
	return p
}

// write sends the problem without huma, for requests that do not reach it.
func (p *Problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problemType)
	p.noteIn(w)
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.json()) // fails if the client is gone
}

// refusals turns what huma refuses into a problem: huma answers 422 where shards answer
// INVALID_ARGUMENT, and quotes values.
func refusals(ctx huma.Context, _ string, v any) (any, error) {
	_, w := humago.Unwrap(ctx)
	if n, ok := v.(noted); ok {
		n.noteIn(w)
	}
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problem(invalidAs400(model.Status), model.Detail)
	for _, e := range model.Errors {
		if e == nil {
			continue
		}
		p.Fields = append(p.Fields, rpc.Violation{Field: e.Location, Description: e.Message})
		p.Detail += "; " + strings.TrimPrefix(e.Location+": ", ": ") + e.Message
	}
	p.noteIn(w)
	return p, nil
}

// noted is an answer that notes for the audit of a change what went wrong.
type noted interface{ noteIn(w http.ResponseWriter) }

func (p *Problem) noteIn(w http.ResponseWriter) {
	if recorded, ok := w.(*recorder); ok {
		recorded.detail, recorded.failed = p.Detail, p.Shards
	}
}

func (p Partial[T]) noteIn(w http.ResponseWriter) {
	if recorded, ok := w.(*recorder); ok {
		recorded.failed = p.Failed
	}
}

func invalidAs400(status int) int {
	if status == http.StatusUnprocessableEntity {
		return http.StatusBadRequest
	}
	return status
}

// statusOf maps an error of a shard to a status. conditional: the request had If-Match.
func statusOf(err error, conditional bool) int {
	if errors.Is(err, admin.ErrNoGroup) {
		return http.StatusNotFound
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.NotFound:
		return http.StatusNotFound
	case codes.FailedPrecondition, codes.AlreadyExists:
		return http.StatusConflict
	case codes.Aborted:
		if conditional {
			return http.StatusPreconditionFailed
		}
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Unauthenticated, codes.Unimplemented: // this program's own fault, not the caller's
		return http.StatusBadGateway
	default:
		if errors.Is(err, context.DeadlineExceeded) {
			return http.StatusGatewayTimeout
		}
		return http.StatusInternalServerError
	}
}

// failures takes joined errors apart.
func failures(err error, conditional bool) (all []Failure) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, failures(e, conditional)...)
		}
		return all
	}
	f := Failure{Status: statusOf(err, conditional), Detail: err.Error(), Fields: rpc.Violations(err), outcome: isOutcome(err)}
	var of *client.ShardError
	if errors.As(err, &of) {
		f.Shard = of.Shard
	}
	return []Failure{f}
}

// problemOf is the answer if all shards failed. If they did in different ways, the status is
// 502.
func problemOf(all []Failure) *Problem {
	p := &Problem{}
	var details []string
	for _, f := range all {
		if p.Status = cmp.Or(p.Status, f.Status); p.Status != f.Status {
			p.Status = http.StatusBadGateway
		}
		details = append(details, f.Detail)
		p.Fields = append(p.Fields, f.Fields...)
		p.Removals = append(p.Removals, f.Removals...)
	}
	if len(all) > 1 {
		p.Shards = all
	}
	p.Title, p.Detail = http.StatusText(p.Status), strings.Join(details, "; ")
	return p
}

// firstProblem is the answer of a request that only one of the shards can serve: that others
// do not have the instance says nothing if one could not be asked.
func firstProblem(err error) *Problem {
	all := failures(err, false)
	var telling []Failure
	for _, f := range all {
		if f.Status != http.StatusNotFound {
			telling = append(telling, f)
		}
	}
	if len(telling) == 0 {
		telling = all
	}
	return problemOf(telling)
}

// json is the problem as JSON.
func (p *Problem) json() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		return []byte("{}")
	}
	return text
}
