package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// ReadyPath is the path of Elector.Answers.
const ReadyPath = "/ready"

const (
	maxAnswerBytes = 4 << 10
	proveWithin    = 50 * time.Second // bounds a standby's check whether it could act
	answerTimeout  = 5 * time.Second  // bounds the call to the leader
)

// Answer says whether a server could act as leader. It is posted to ReadyPath of the leader that
// asked.
type Answer struct {
	Server string `json:"server"` // the answering holder
	Leader string `json:"leader"` // the asking holder
	Ask    uint64 `json:"ask"`    // the number of the question
	Ready  bool   `json:"ready"`
}

// ParseAnswer parses an answer. It ignores unknown fields.
func ParseAnswer(b []byte) (Answer, error) {
	var a Answer
	if len(b) > maxAnswerBytes {
		return Answer{}, fmt.Errorf("parse answer: %d bytes, at most %d are valid", len(b), maxAnswerBytes)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return Answer{}, fmt.Errorf("parse answer: %w", err)
	}
	for _, one := range []struct{ field, holder string }{{"server", a.Server}, {"leader", a.Leader}} {
		if one.holder == "" || len(one.holder) > maxHolder {
			return Answer{}, fmt.Errorf("parse answer: %s: %.80q is not a name of 1 to %d characters", one.field, one.holder, maxHolder)
		}
	}
	if a.Ask == 0 {
		return Answer{}, errors.New("parse answer: ask: 0 is not a question, the first is 1")
	}
	return a, nil
}

// Answers serves POST /ready: other servers' answers to questions in the stream of GET
// /leader. It admits the same callers as Handler.
func (e *Elector) Answers() http.Handler { return http.HandlerFunc(e.serveAnswer) }

func (e *Elector) serveAnswer(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "method not allowed, want POST", http.StatusMethodNotAllowed)
		return
	}
	// Not every ResponseWriter supports deadlines; the server's apply otherwise.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(answerTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAnswerBytes))
	if err != nil {
		http.Error(w, "read answer: "+err.Error(), http.StatusBadRequest)
		return
	}
	a, err := ParseAnswer(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.log.Info("standby answered whether it could act", slog.String("server", a.Server), slog.Bool("ready", a.Ready))
	e.step(func(m *machine, now instant) { m.gotAnswer(now, a) })
	w.WriteHeader(http.StatusNoContent)
}

// prove checks whether this server could act, and answers the leader that asked.
func (e *Elector) prove(ctx context.Context, c proveReady) {
	// Each check has its own key, so the write's condition holds unless the store is wrong.
	key := fmt.Sprintf("probe/%s.%d.%d", e.cfg.Holder, c.epoch, c.ask)
	err := e.couldAct(ctx, key, c.window)
	if err != nil {
		e.warn(ctx, "find out whether this server could act", err)
	}
	a := Answer{Server: e.cfg.Holder, Leader: c.leader, Ask: c.ask, Ready: err == nil}
	if err := e.answer(ctx, c.addr, a); err != nil {
		e.warn(ctx, "answer the leader", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_ = e.cfg.Store.Delete(ctx, key) // a leftover object is harmless
}

func (e *Elector) answer(ctx context.Context, addr string, a Answer) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return e.cfg.Peers.Answer(ctx, addr, a)
}

// couldAct does what a leader must be able to do: the configured probe, and a conditional
// write of a scratch object within the fence window.
func (e *Elector) couldAct(ctx context.Context, key string, window time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	if e.cfg.Probe != nil {
		if err := e.cfg.Probe(ctx); err != nil {
			return err
		}
	}
	sent := e.cfg.Clock.Now().Mono
	_, err := e.cfg.Store.Put(ctx, key, []byte(e.cfg.Holder), object.IfAbsent())
	took := e.cfg.Clock.Now().Mono - sent
	switch {
	case err != nil:
		return fmt.Errorf("write %s: %w", key, err)
	case took >= window:
		return fmt.Errorf("write %s: took %s, want less than the fence window of %s", key, took.Round(time.Millisecond), window)
	}
	return nil
}

// AwaitBlocked returns what keeps this server from acting, once that differs from last, or the
// cause of ctx's end.
func (e *Elector) AwaitBlocked(ctx context.Context, last Blocked) (Blocked, error) {
	for {
		e.mu.Lock()
		now, changed := e.blocked, e.changed
		e.mu.Unlock()
		if now != last {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-changed:
		}
	}
}
