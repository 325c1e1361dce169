package files

import "errors"

// recover completes or reverts what a crash interrupted, and returns the set that is in place,
// or the zero manifest if there never was one.
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
	_ = k.discard() // the next stage requires it to succeed
	return before, nil
}

// manifest reads a record. Records are written atomically, so an invalid one was edited: it is
// set aside, and the server sends again whatever differs.
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
