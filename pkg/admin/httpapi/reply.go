package httpapi

import (
	"net/http"
	"slices"

	"github.com/nstance/nstance/pkg/client"
)

// reply is the answer of an operation; its types by status are in the operation.
type reply struct {
	Status int
	ETag   string `header:"ETag" hidden:"true"`
	Body   any
}

// Partial is the answer if only some shards could be asked.
type Partial[T any] struct {
	Answers []T       `json:"answers" doc:"Of the shards that answered: what status 200 would have had"`
	Failed  []Failure `json:"failed" doc:"The shards that did not, and why"`
}

// gathered is the answer of several shards: 200 with all, 207 with those that did not fail, or
// the problem.
func gathered[T any](shards []client.Shard, answers []T, err error, conditional bool) (*reply, error) {
	failed := failures(err, conditional)
	switch {
	case len(failed) == 0:
		return &reply{Status: http.StatusOK, Body: answers}, nil
	case len(failed) < len(shards) && !ofAll(failed):
		return &reply{Status: http.StatusMultiStatus, Body: Partial[T]{Answers: answers, Failed: failed}}, nil
	default:
		return nil, problemOf(failed)
	}
}

// ofAll reports whether an error is of no shard alone: such as that none has a group.
func ofAll(failed []Failure) bool {
	return slices.ContainsFunc(failed, func(f Failure) bool { return f.Shard == "" })
}
