package operators

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// ConditionCreatesFailing is the type of the condition that a group's creates fail. It is set
// whether or not the group is at size.
const ConditionCreatesFailing = "CreatesFailing"

// maxWords bounds the provider's message in a condition, in bytes.
const maxWords = 600

// tally starts the part of the condition's message that keeps changing. That part has no
// opening bracket, so the last one in a message starts it.
const tally = " ("

func createsFailing(f fleet.CreatesFailing) *nstancev1.Condition {
	next := "the outcome of the next one is pending"
	if !f.Next.IsZero() {
		next = "the next is due at " + f.Next.UTC().Format(time.RFC3339)
	}
	return trueCondition(ConditionCreatesFailing, f.Reason, fmt.Sprintf("%s%s%d creates failed since %s, %s)",
		strings.ToValidUTF8(fmt.Sprintf("%.*s", maxWords, f.Message), "?"), tally, f.Failures, f.Since.UTC().Format(time.RFC3339), next))
}

// sameWords reports whether a problem is a failed create like the last one in the condition.
func sameWords(p fleet.Problem, f fleet.CreatesFailing) bool {
	return p.Reason == f.Reason && withoutIDs(p.Message) == withoutIDs(f.Message)
}

// groupDigest returns the digest of a group's status for watches. Which of its instances has a problem,
// the number of failed creates and the time of the next one do not count as changes.
func groupDigest(g *nstancev1.GroupStatus) broadcast.Digest {
	var steady *nstancev1.GroupStatus
	for n, c := range g.GetConditions() {
		if c.GetType() != ConditionCreatesFailing && c.GetType() != conditionDegraded {
			continue
		}
		if steady == nil {
			steady = proto.CloneOf(g)
		}
		words := steady.GetConditions()[n]
		if at := strings.LastIndex(words.GetMessage(), tally); at >= 0 && c.GetType() == ConditionCreatesFailing {
			words.Message = words.GetMessage()[:at]
		}
		words.Message = withoutIDs(words.GetMessage())
	}
	if steady == nil {
		steady = g
	}
	return digest(steady)
}

// withoutIDs removes instance IDs, since each failed create has another one.
func withoutIDs(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		_, err := fleet.ParseID(strings.Trim(word, `:,.;"'()[]`))
		return err == nil
	}), " ")
}
