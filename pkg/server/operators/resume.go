package operators

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
)

// resumeToken names a place in the streams of instances of one term. The zero one is
// no place. A term is known by its epoch and its writer: when a bucket was put back an
// epoch may come again, and what a client saw in the first one is not what there is now.
type resumeToken struct {
	epoch    uint64
	all      bool
	revision broadcast.Revision
	writer   string // as writerMark returns it
}

// The kinds of watches of instances, as tokens name them.
const (
	watchOfAll     = "all"
	watchOfLeaving = "leaving"
)

// markBytes is the length of a writer's mark before it is encoded.
const markBytes = 8

// writerMark is what tokens know a term's writer by: its name is long, and no business of
// a client.
func writerMark(writer string) string {
	sum := sha256.Sum256([]byte(writer))
	return hex.EncodeToString(sum[:markBytes])
}

func (t resumeToken) String() string {
	kind := watchOfLeaving
	if t.all {
		kind = watchOfAll
	}
	return fmt.Sprintf("%d.%s.%d.%s", t.epoch, kind, t.revision, t.writer)
}

// parseResumeToken reads what String writes, and nothing else; empty: no place.
func parseResumeToken(text string) (resumeToken, error) {
	if text == "" {
		return resumeToken{}, nil
	}
	refused := &rpc.ViolationsError{
		Message:    "invalid resume_token: pass one from a watch event unchanged",
		Violations: []rpc.Violation{{Field: "resume_token", Description: fmt.Sprintf("%.80q is not from a watch event", text)}},
	}
	parts := strings.Split(text, ".")
	if len(parts) != 4 {
		return resumeToken{}, refused
	}
	epoch, errEpoch := strconv.ParseUint(parts[0], 10, 64)
	revision, errRevision := strconv.ParseUint(parts[2], 10, 64)
	mark, errMark := hex.DecodeString(parts[3])
	t := resumeToken{epoch: epoch, all: parts[1] == watchOfAll, revision: broadcast.Revision(revision), writer: hex.EncodeToString(mark)}
	if errEpoch != nil || errRevision != nil || errMark != nil || len(mark) != markBytes || t.String() != text {
		return resumeToken{}, refused
	}
	return t, nil
}

// within is the revision that a token names in a stream; 0: it is of another.
func (t resumeToken) within(stream resumeToken) broadcast.Revision {
	if t.epoch != stream.epoch || t.writer != stream.writer || t.all != stream.all {
		return 0
	}
	return t.revision
}
