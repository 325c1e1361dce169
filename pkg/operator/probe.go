package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

const (
	// probePatience is how long an answer may take: more than kubelet grants, for names
	// have to be found too, and a Service leads to a pod only some time after that is
	// ready.
	probePatience = 10 * time.Second
	probeEvery    = 250 * time.Millisecond
)

// Probe asks an operator's health endpoint and writes its answer to out. There is no
// shell in the operator's image that could. It asks again while nothing answers, for at
// most 10 seconds; any answer but 200 is an error at once.
func Probe(ctx context.Context, endpoint string, out io.Writer) error {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--probe: %.200q is not valid: want a URL such as http://nstance-operator.nstance:8081/readyz", endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	var last error // that says more than that the time is over
	for {
		answer, err := probe(ctx, endpoint)
		if err == nil {
			defer answer.Body.Close()
			return judge(answer, out)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if retry.Wait(ctx, probeEvery) != nil {
			return fmt.Errorf("--probe: %w", last)
		}
	}
}

func probe(ctx context.Context, endpoint string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func judge(answer *http.Response, out io.Writer) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return fmt.Errorf("--probe: %s: %w", answer.Request.URL, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("--probe: %s answers %s: %s", answer.Request.URL, answer.Status, strings.TrimSpace(string(text)))
	}
	_, err = fmt.Fprintf(out, "%s\n", strings.TrimSpace(string(text)))
	return err
}
