package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// probePatience is how long an answer may take: more than kubelet grants, for names
// have to be found too.
const probePatience = 10 * time.Second

// Probe asks an operator's health endpoint and writes its answer to out. There is no
// shell in the operator's image that could. Any answer but 200 is an error.
func Probe(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("--probe: %w", err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("--probe: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return fmt.Errorf("--probe: %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("--probe: %s answers %s: %s", url, answer.Status, strings.TrimSpace(string(text)))
	}
	_, err = fmt.Fprintf(out, "%s\n", strings.TrimSpace(string(text)))
	return err
}
