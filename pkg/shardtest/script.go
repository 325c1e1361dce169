package shardtest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a script may hold, so that one from anywhere is safe to play.
const (
	maxScript = 64 << 10 // bytes
	maxSteps  = 2000
	maxWait   = 24 * time.Hour
	maxCount  = 100
)

// Script is a story: one step a line, each a command of the table in
// commands.go. Empty lines, and what follows a #, say nothing.
type Script struct{ Steps []Step }

// Step is one line of a Script.
type Step struct {
	words []string // as they were written
	args  args
	do    func(*Shard, args) error
}

// args are what a step names, by kind, each in the order of the line.
type args struct {
	words []string
	span  time.Duration
	count int
}

// String is the step as it is written.
func (s Step) String() string { return strings.Join(s.words, " ") }

// String is the script as it is written, without its comments.
func (s Script) String() string {
	var b strings.Builder
	for _, step := range s.Steps {
		b.WriteString(step.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseScript reads a script. Its errors name the line, and what could be there.
func ParseScript(text string) (Script, error) {
	if len(text) > maxScript {
		return Script{}, fmt.Errorf("parse a script: %d bytes: want at most %d", len(text), maxScript)
	}
	var s Script
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		step, err := parseStep(words)
		if err != nil {
			return Script{}, fmt.Errorf("parse line %d of a script: %w", n+1, err)
		}
		s.Steps = append(s.Steps, step)
	}
	if len(s.Steps) > maxSteps {
		return Script{}, fmt.Errorf("parse a script: %d steps: want at most %d", len(s.Steps), maxSteps)
	}
	return s, nil
}

func parseStep(words []string) (Step, error) {
	var near []string
	for _, c := range commands() {
		pattern := strings.Fields(c.pattern)
		if a, ok := match(pattern, words); ok {
			return Step{words: words, args: a, do: c.do}, nil
		}
		if pattern[0] == words[0] {
			near = append(near, strconv.Quote(c.pattern))
		}
	}
	if len(near) > 0 {
		return Step{}, fmt.Errorf("%.80q is none of %s", strings.Join(words, " "), strings.Join(near, ", "))
	}
	var verbs []string
	for _, c := range commands() {
		verbs = append(verbs, strings.Fields(c.pattern)[0])
	}
	slices.Sort(verbs)
	return Step{}, fmt.Errorf("%.40q is no command: want one of %s", words[0], strings.Join(slices.Compact(verbs), ", "))
}

// match compares words with a pattern, in which words of capitals stand for a
// kind of value.
func match(pattern, words []string) (a args, ok bool) {
	if len(pattern) != len(words) {
		return a, false
	}
	for n, want := range pattern {
		got := words[n]
		switch kind, isKind := kinds()[want]; {
		case want == "SPAN":
			a.span, ok = span(got)
		case want == "COUNT":
			a.count, ok = count(got)
		case isKind:
			ok = kind.MatchString(got)
			a.words = append(a.words, got)
		default:
			ok = want == got
		}
		if !ok {
			return args{}, false
		}
	}
	return a, true
}

// kinds are the values that a pattern can ask for, besides SPAN and COUNT.
func kinds() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"SERVER":   serverName,
		"HOST":     hostName,
		"INSTANCE": instanceName,
		"GROUP":    plainName,
		"KEY":      plainName,
		"TYPE":     plainName,
		"CALL":     callName,
		"KIND":     kindName,
	}
}

// An instance goes by its name in the timeline, or as any with a number, which
// picks one of those that are there at that moment.
var (
	serverName   = regexp.MustCompile(`^([a-c]|leader|follower)$`)
	instanceName = regexp.MustCompile(`^(i|any)[0-9]{1,4}$`)
	hostName     = regexp.MustCompile(`^([a-c]|leader|follower|store|agents|operator|(i|any)[0-9]{1,4})$`)
	plainName    = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)
	callName     = regexp.MustCompile(`^(create|delete|get|list)$`)
	kindName     = regexp.MustCompile(`^(instance|groups|request|cluster|probe)$`)
)

func span(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0 && d <= maxWait
}

func count(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxCount
}
