package store

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

// problemsFile lists the files that are held back, and why.
const problemsFile = ".problems"

// problems are the files that are held back, by path, and why.
type problems struct {
	file string // the list for users
	log  *slog.Logger
	why  map[string]string
}

// settle records a file's problem; nil clears it.
func (p *problems) settle(path string, why error) {
	was, bad := p.why[path]
	switch {
	case why == nil && !bad || why != nil && why.Error() == was:
		return
	case why == nil:
		delete(p.why, path)
		p.log.Info("a file that was held back is applied now", slog.String("file", path))
	default:
		p.why[path] = why.Error()
		p.log.Warn("a file is held back", slog.String("file", path), slog.Any("error", why))
	}
	if err := p.report(); err != nil {
		p.log.Error("write the list of files that are held back", slog.Any("error", err))
	}
}

func (p *problems) report() error {
	if len(p.why) == 0 {
		if err := os.Remove(p.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	var b bytes.Buffer
	e := encoderTo(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(p.why); err != nil {
		return err
	}
	return kinds.WriteFile(p.file, b.Bytes())
}
