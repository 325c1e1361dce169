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

// ConditionCreatesFailing is the type of the condition that the creates of a group
// fail. It has it whether or not it has all its instances.
const ConditionCreatesFailing = "CreatesFailing"

// maxWords bounds what a provider says, in a condition.
const maxWords = 600

// tally begins the part of the condition's message that goes on counting. What is in it
// has no opening bracket, so the last one in a message begins it.
const tally = " ("

func createsFailing(f fleet.CreatesFailing) *nstancev1.Condition {
	next := "what becomes of the next is awaited"
	if !f.Next.IsZero() {
		next = "the next is due at " + f.Next.UTC().Format(time.RFC3339)
	}
	return &nstancev1.Condition{
		Type: ConditionCreatesFailing, Status: true, Reason: f.Reason,
		Message: fmt.Sprintf("%s%s%d creates failed since %s, %s)",
			strings.ToValidUTF8(fmt.Sprintf("%.*s", maxWords, f.Message), "?"), tally, f.Failures, f.Since.UTC().Format(time.RFC3339), next),
	}
}

// sameWords reports whether a problem is a failed create like the last one that the
// condition tells of.
func sameWords(p fleet.Problem, f fleet.CreatesFailing) bool {
	return p.Reason == f.Reason && withoutIDs(p.Message) == withoutIDs(f.Message)
}

// groupDigest tells whether the status of a group is another one for those who watch
// it. That one more create failed, and when the next is due, is none.
func groupDigest(g *nstancev1.GroupStatus) broadcast.Digest {
	for n, c := range g.GetConditions() {
		if c.GetType() != ConditionCreatesFailing {
			continue
		}
		steady := proto.CloneOf(g)
		words := steady.GetConditions()[n]
		if at := strings.LastIndex(words.GetMessage(), tally); at >= 0 {
			words.Message = withoutIDs(words.GetMessage()[:at])
		}
		return digest(steady)
	}
	return digest(g)
}

// withoutIDs leaves out the ids of instances: each create that fails has another one.
func withoutIDs(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		_, err := fleet.ParseID(strings.Trim(word, `:,.;"'()[]`))
		return err == nil
	}), " ")
}
