package operators

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/server/broadcast"
)

// resumeToken names a place in the streams of instances of one term. The zero one is
// no place.
type resumeToken struct {
	epoch    uint64
	all      bool
	revision broadcast.Revision
}

// The kinds of watches of instances, as tokens name them.
const (
	watchOfAll     = "all"
	watchOfLeaving = "leaving"
)

func (t resumeToken) String() string {
	kind := watchOfLeaving
	if t.all {
		kind = watchOfAll
	}
	return fmt.Sprintf("%d.%s.%d", t.epoch, kind, t.revision)
}

// parseResumeToken reads what String writes, and nothing else; empty: no place.
func parseResumeToken(text string) (resumeToken, error) {
	if text == "" {
		return resumeToken{}, nil
	}
	epoch, rest, _ := strings.Cut(text, ".")
	kind, revision, _ := strings.Cut(rest, ".")
	e, errEpoch := strconv.ParseUint(epoch, 10, 64)
	r, errRevision := strconv.ParseUint(revision, 10, 64)
	t := resumeToken{epoch: e, all: kind == watchOfAll, revision: broadcast.Revision(r)}
	if errEpoch != nil || errRevision != nil || t.String() != text {
		return resumeToken{}, invalid("resume_token", fmt.Sprintf("%.80q is none: want that of an event of a watch, as it was", text))
	}
	return t, nil
}

// within is the revision that a token names in a stream; 0: it is of another.
func (t resumeToken) within(stream resumeToken) broadcast.Revision {
	if t.epoch != stream.epoch || t.all != stream.all {
		return 0
	}
	return t.revision
}
