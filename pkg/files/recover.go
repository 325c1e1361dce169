package files

import "errors"

// recover completes or takes back what a crash left unfinished, and returns the
// set that is in place then; the zero manifest when none ever was.
func (k disk) recover() (manifest, error) {
	if !k.exists(homeDir) {
		return manifest{}, nil
	}
	if err := k.home(); err != nil {
		return manifest{}, err
	}
	before, _, err := k.manifest(manifestFile)
	if err != nil {
		return manifest{}, err
	}
	if next, ok, err := k.manifest(undoFile); err != nil || ok {
		if err == nil {
			err = k.back(next)
		}
		return before, err
	}
	next, ok, err := k.manifest(commitFile)
	if err != nil {
		return before, err
	}
	if ok {
		if err := k.forward(next, before); err == nil {
			before = next
		} else if broken := k.undo(next); broken != nil {
			return before, errors.Join(err, broken)
		}
	}
	_ = k.discard() // the next set to be staged insists on it
	return before, nil
}

// manifest reads one of the records. They are written whole, so one that can't
// be understood is somebody's doing: it is put aside, and the server sends again
// what is not as it should be.
func (k disk) manifest(name string) (m manifest, ok bool, err error) {
	data, err := k.read(name, maxManifest)
	if absent(err) {
		return manifest{}, false, nil
	}
	if err == nil {
		if m, err = parseManifest(data); err == nil {
			return m, true, nil
		}
	} else if !errors.Is(err, errTooLong) {
		return manifest{}, false, err
	}
	return manifest{}, false, k.rename(name, name+".bad")
}
