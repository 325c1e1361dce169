package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

const (
	// probePatience bounds the wait for a good answer. It is longer than kubelet's: names must
	// resolve first, a Service routes to a pod only some time after it is ready, and a newly
	// elected operator opens its identity first.
	probePatience = 30 * time.Second
	probeEvery    = 250 * time.Millisecond
)

// Probe requests an operator's health endpoint and writes the response to out; the operator's
// image has no shell to do so. It retries for up to 30 seconds while nothing answers or the
// answer is 5xx; any other status than 200 fails at once.
func Probe(ctx context.Context, endpoint string, out io.Writer) error {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--probe: %.200q is not valid: want a URL such as http://nstance-operator.nstance:8081/readyz", endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	var last error // more informative than the timeout
	for {
		text, err := probe(ctx, endpoint)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", text)
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if errors.Is(err, errWrongAnswer) || retry.Wait(ctx, probeEvery) != nil {
			return fmt.Errorf("--probe: %w", last)
		}
	}
}

// errWrongAnswer is a response that a retry won't change.
var errWrongAnswer = errors.New("want 200")

// probe sends one request and returns the body of a 200.
func probe(ctx context.Context, endpoint string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return "", fmt.Errorf("%s: %w", endpoint, err)
	}
	switch text := strings.TrimSpace(string(body)); {
	case answer.StatusCode == http.StatusOK:
		return text, nil
	case answer.StatusCode >= http.StatusInternalServerError:
		return "", fmt.Errorf("%s answers %s: %s", endpoint, answer.Status, text)
	default:
		return "", fmt.Errorf("%s answers %s: %s: %w", endpoint, answer.Status, text, errWrongAnswer)
	}
}
