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
	// probePatience is how long a good answer may take: more than kubelet grants, for names
	// have to be found too, a Service leads to a pod only some time after that is ready,
	// and an operator that was just elected has to open its identity first.
	probePatience = 30 * time.Second
	probeEvery    = 250 * time.Millisecond
)

// Probe asks an operator's health endpoint and writes its answer to out. There is no
// shell in the operator's image that could. It asks again while nothing answers, or what
// answers says that it is not ready (5xx), for at most 30 seconds; any other answer but
// 200 is an error at once.
func Probe(ctx context.Context, endpoint string, out io.Writer) error {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--probe: %.200q is not valid: want a URL such as http://nstance-operator.nstance:8081/readyz", endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	var last error // that says more than that the time is over
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

// errWrongAnswer is an answer that will not become another by being asked for again.
var errWrongAnswer = errors.New("want 200")

// probe asks once, and returns what a good answer says.
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
