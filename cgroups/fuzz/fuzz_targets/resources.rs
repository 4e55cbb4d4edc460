//! `linux.resources` in JSON, and an update of it: lines of the input. What is accepted stays
//! acceptable, reads back from the record, and is no change when it comes again.

#![no_main]

use lazy_cgroups::resources::Resources;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| {
    let Ok(text) = std::str::from_utf8(content) else {
        return;
    };
    let mut inforce = Resources::default();
    for json in text.lines().take(4) {
        let Ok(update) = Resources::from_spec_json(json) else {
            continue;
        };
        // Whether or not it is valid.
        update.constrained();
        let Ok(updated) = inforce.updated(&update) else {
            continue;
        };
        updated
            .validate()
            .expect("what an update leads to is valid");
        let record = serde_json::to_string(&updated).expect("a record");
        let read: Resources = serde_json::from_str(&record).expect("the record");
        assert_eq!(read, updated);
        let again = updated.updated(&update).expect("the same again");
        assert_eq!(again, updated, "{json}");
        inforce = updated;
    }
});
