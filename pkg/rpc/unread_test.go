package rpc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const listGroupsMethod = nstancev1.OperatorService_ListGroups_FullMethodName

// letsNothingOut prevents a server from sending messages.
var letsNothingOut = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}

// answering serves answers of this size.
func (a *authority) answering(size int, set func(*rpc.Limits)) string {
	return serve(a.t, a.answers(size, set))
}

func (a *authority) answers(size int, set func(*rpc.Limits)) rpc.ServerConfig {
	config := a.config()
	config.Services = serving(func(context.Context) (*nstancev1.ListGroupsResponse, error) {
		answer := &nstancev1.ListGroupsResponse{}
		answer.ProtoReflect().SetUnknown(framed(size)[5:])
		return answer, nil
	})
	config.Limits.AnswerTimeout = patience
	set(&config.Limits)
	return config
}

// TestDataAfterTheAnswer: data counts while the client does not read the answer, and is freed
// when the stream or the connection ends.
func TestDataAfterTheAnswer(t *testing.T) {
	ours := newAuthority(t, cluster)
	addr := ours.answering(0, func(l *rpc.Limits) { l.MaxHeld = 64 << 10 })
	pair := ours.operator(time.Hour)
	c := ours.raw(addr, pair, letsNothingOut)
	c.call(1, listGroupsMethod)
	c.send(1, framed(0))
	if got := c.answer(1); got != "" {
		t.Fatalf("answered %s", got)
	}
	c.send(1, make([]byte, 60<<10))
	c.call(3, listGroupsMethod)
	c.send(3, framed(36<<10))
	if got := c.answer(3); got != "8" { // RESOURCE_EXHAUSTED
		t.Errorf("answered %q while the share is used up", got)
	}
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	c.call(5, listGroupsMethod)
	c.send(5, framed(36<<10))
	if got := c.answer(5); got != "" {
		t.Errorf("answered %s when the stream has ended", got)
	}
}

// TestUnreadAnswersCount: an unread answer counts for its caller. A single answer passes
// whatever its size.
func TestUnreadAnswersCount(t *testing.T) {
	ours := newAuthority(t, cluster)
	addr := ours.answering(600<<10, func(l *rpc.Limits) { l.MaxHeld = 512 << 10 })
	pair := ours.operator(time.Hour)
	c, other := ours.raw(addr, pair, letsNothingOut), ours.raw(addr, pair, letsNothingOut)
	ask := func(c *rawClient, stream uint32) string {
		c.call(stream, listGroupsMethod)
		c.send(stream, framed(0))
		return c.answer(stream)
	}
	if got := ask(c, 1); got != "" {
		t.Fatalf("the only one answered %s", got)
	}
	if got := ask(c, 3); got != "8" {
		t.Errorf("the second answered %q", got)
	}
	if got := ask(other, 1); got != "8" {
		t.Errorf("one on another connection answered %q", got)
	}
	c.must(c.WriteWindowUpdate(0, 1<<20))
	c.must(c.WriteWindowUpdate(1, 1<<20))
	if got := c.answer(1); got != "0" {
		t.Fatalf("the first ended with %q", got)
	}
	if got := ask(c, 5); got != "" {
		t.Errorf("one when the first was read answered %s", got)
	}
}

// TestAnswersThatNobodyReads: unread answers are not held for long.
func TestAnswersThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		l := serveInside(t, ours.answers(0, func(l *rpc.Limits) { l.AnswerTimeout = 100 * time.Millisecond }))
		c := ours.rawOn(must(l.Dial())(t), ours.operator(time.Hour), letsNothingOut)
		c.call(1, listGroupsMethod)
		c.send(1, framed(0))
		c.closed()
		if err := listGroups(t.Context(), ours.dialInside(l, ours.operator(time.Hour))); err != nil {
			t.Error(err)
		}
	})
}
