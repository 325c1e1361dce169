package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// roleFlag starts this binary as a part of a row instead of the benchmark. A role reads its
// settings as one line of JSON from standard input, then one word per line as commands, and writes
// events as lines of JSON to standard output. It ends with its standard input, so that none
// outlives the benchmark.
const roleFlag = "--role"

// roleOperator is the only role that needs Kubernetes.
const roleOperator = "operator"

// event is sent by a role.
type event struct {
	Kind  string    `json:"kind"`
	At    time.Time `json:"at"`
	Text  string    `json:"text,omitempty"`
	Value float64   `json:"value,omitempty"`
	CPU   float64   `json:"cpu,omitempty"` // CPU seconds of the role in between
}

// stage is a role's connection to the process that started it.
type stage struct {
	commands chan string // closed with standard input
	settings []byte

	mu  sync.Mutex
	out *json.Encoder
}

func playRole(ctx context.Context, name string) error {
	play, ok := map[string]func(context.Context, *stage) error{
		"server": playServer, "s3": playS3, "agents": playAgents, "registrants": playRegistrants,
		"besieged": playBesieged, "attackers": playAttackers, roleOperator: playOperator,
	}[name]
	if !ok {
		return fmt.Errorf("no role %q", name)
	}
	in := bufio.NewReader(os.Stdin)
	settings, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the settings of role %s: %w", name, err)
	}
	s := &stage{commands: make(chan string), settings: settings, out: json.NewEncoder(os.Stdout)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		s.listen(ctx, in)
	}()
	return play(ctx, s)
}

func (s *stage) listen(ctx context.Context, in io.Reader) {
	defer close(s.commands)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		select {
		case s.commands <- lines.Text():
		case <-ctx.Done():
			return
		}
	}
}

func (s *stage) read(settings any) error {
	if err := json.Unmarshal(s.settings, settings); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	return nil
}

func (s *stage) tell(e event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// If this fails, that process has ended.
	_ = s.out.Encode(e)
}
