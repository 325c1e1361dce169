package shardtest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The limits of a script, so that untrusted ones are safe to play.
const (
	maxScript = 64 << 10 // bytes
	maxSteps  = 2000
	maxWait   = 24 * time.Hour
	maxCount  = 100
)

// Script is a sequence of steps, one per line, each a command of the table in commands.go.
// Empty lines and comments, which begin with #, are ignored.
type Script struct{ Steps []Step }

// Step is one line of a Script.
type Step struct {
	words []string // as written
	args  args
	do    func(*Shard, args) error
}

// args are the arguments of a step, by kind, each in the order of the line.
type args struct {
	words []string
	span  time.Duration
	count int
}

// String returns the step as written.
func (s Step) String() string { return strings.Join(s.words, " ") }

// String returns the script as written, without comments.
func (s Script) String() string {
	var b strings.Builder
	for _, step := range s.Steps {
		b.WriteString(step.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseScript parses a script. Its errors name the line and the valid commands.
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
		return Step{}, fmt.Errorf("%.80q is not one of %s", strings.Join(words, " "), strings.Join(near, ", "))
	}
	var verbs []string
	for _, c := range commands() {
		verbs = append(verbs, strings.Fields(c.pattern)[0])
	}
	slices.Sort(verbs)
	return Step{}, fmt.Errorf("%.40q is not a command: want one of %s", words[0], strings.Join(slices.Compact(verbs), ", "))
}

// match compares words with a pattern, in which a word in capitals matches a kind of value.
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

// kinds are the kinds of values in patterns, besides SPAN and COUNT.
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

// An instance is named as in the timeline, or as "any" with a number, which picks one of
// those that exist at that time.
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
