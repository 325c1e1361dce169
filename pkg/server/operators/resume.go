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

// resumeToken is a position in the instance streams of one term; the zero token is none. A
// term is identified by its epoch and its writer: after a bucket was restored an epoch may
// occur again, with another history.
type resumeToken struct {
	epoch    uint64
	all      bool
	revision broadcast.Revision
	writer   string // from writerMark
}

// Kinds of instance watches in tokens.
const (
	watchOfAll     = "all"
	watchOfLeaving = "leaving"
)

// markBytes is the length of a writer mark before encoding.
const markBytes = 8

// writerMark returns the short form of a term's writer in tokens: the full name is long and
// internal.
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

// parseResumeToken parses the output of String, and rejects everything else. The empty text is
// no position.
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

// within returns the token's revision in a stream, or 0 if the token is of another stream.
func (t resumeToken) within(stream resumeToken) broadcast.Revision {
	if t.epoch != stream.epoch || t.writer != stream.writer || t.all != stream.all {
		return 0
	}
	return t.revision
}
